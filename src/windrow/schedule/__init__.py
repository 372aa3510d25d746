"""When periodic queries run: deadlines, joint execution, and being late in a good order (Golab, chapter 8.4).

    technique   the ways to schedule
    arrival     the period of a query that comes while others run

Time is counted in ticks of a clock and given, never read; nothing here knows a runtime, a plan or a row.
"""
