"""No module needs one that needs it, at its import or later in a function."""

from graphlib import TopologicalSorter

import grimp


def test_no_imports_run_in_a_circle() -> None:
    graph = grimp.build_graph(
        "tftraining_api", "tftraining_operator", "tftraining", "tftraining_client", cache_dir=None
    )
    assert len(graph.modules) > 400
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()
