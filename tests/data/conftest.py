import pytest


@pytest.fixture(scope="module", autouse=True)
def private_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield
