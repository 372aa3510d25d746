"""Schedules of a workload that is known as a whole (Golab, chapter 8.4): what they cost, and how tasks are formed.

    tasks       queries, their costs, and the tasks they form: by group, by sub-group of equal period
    cost        what a schedule costs per update, joint runs counted once
    hybrid      periods shortened so that queries meet: a dynamic program over sub-groups
    technique   the ways to schedule: six of the thesis (table 8.1) and ours

An engine plans no workload at once: of the periods it chooses that of the query that comes (`windrow.schedule`). Time
is counted in updates of the synopses (s in the thesis) and given, never read.
"""
