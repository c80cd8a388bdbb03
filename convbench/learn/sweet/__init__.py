"""SWEET: the critic, candidates, their ranking, and the stages that join them."""
