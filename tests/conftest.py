"""Settings of all tests: this folder on the path for its helpers, and hypothesis without clocks or chance."""

import hypothesis
import pytest

hypothesis.settings.register_profile("tersor", deadline=None, derandomize=True, database=None, print_blob=True)
hypothesis.settings.load_profile("tersor")


@pytest.fixture(scope="session")
def pool():
    """Four gloo processes, started once."""
    pytest.importorskip("torch")
    from pool import Pool

    workers = Pool()
    yield workers
    workers.close()
