"""The world of the prediction tests, which are recorded here, too."""

from tests.training.conftest import federation_fixture as federation_fixture
from tests.training.conftest import run_fixture as run_fixture
from tests.training.conftest import synthetic_fixture as synthetic_fixture
from tests.training.predicting import world_fixture as world_fixture
