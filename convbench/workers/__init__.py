"""Workers on the shards of a run: claim, build and judge, give back; and who starts them.

May use judge, rollout and what lies below.
"""
