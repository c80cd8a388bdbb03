"""Language patterns of policies (arXiv version 1 of Mukherjee et al. 2025, appendix E)."""
