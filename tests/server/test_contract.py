"""The API does what its OpenAPI document says, for requests that schemathesis makes up."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
ENDLESS = "/api/queries/{name}/changes"


def test_every_route(admin: httpx.Client) -> None:
    """No made-up request, fit or unfit, causes a fault or an answer that the document does not describe."""
    document = admin.get("/api/openapi.json").json()
    schema: Any = schemathesis.openapi.from_dict(document)
    operations = [found.ok() for found in schema.get_all_operations() if found.ok().path != ENDLESS]
    assert len(operations) >= 18
    case = st.one_of(*(o.as_strategy() for o in operations))

    @settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None, database=None)
    @given(case)
    def probe(made: Any) -> None:
        response = made.call(base_url=str(admin.base_url), headers=dict(admin.headers), timeout=8)
        made.validate_response(response, checks=CHECKS)

    probe()
