"""Settings that every test shares."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Examples are small but build tables and plans: time per example says nothing, so there is no deadline.
_quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=_quiet)
settings.register_profile("ci", deadline=None, max_examples=50, suppress_health_check=_quiet, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=2000, suppress_health_check=_quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
