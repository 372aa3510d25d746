"""What the five papers print, held against what the experiments recorded: a claim for every figure and table.

A claim says what was set up and found in print and how to look for the same in a record (the JSON of an experiment).
Looking gives a figure and whether the claim holds in it; no verdict is written by hand, only the reason why one turned
out otherwise. `windrow bench report` writes docs/reproduction.md from here.
"""
