"""Experiments on top of the library: benches, reproductions of papers, the demonstration, reports of results.

Figures and tables need the extra `lab`: `pip install "tangens[lab]"`. Only the command line imports this room.
"""
