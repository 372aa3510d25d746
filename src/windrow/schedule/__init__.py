"""When periodic queries run: deadlines, joint execution, and being late in a good order (Golab, chapter 8.4).

    tasks       queries, their costs, and the tasks they form: by group, by sub-group of equal period
    cost        what a schedule costs per update, joint runs counted once
    hybrid      periods shortened so that queries meet: a dynamic program over sub-groups
    arrival     the period of a query that comes while others run
    technique   the ways to schedule: six of the thesis (table 8.1) and ours

Time is counted in updates of the synopses (s in the thesis) and given, never read; nothing here knows a runtime, a
plan or a row.
"""
