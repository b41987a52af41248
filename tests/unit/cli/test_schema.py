import json

from click.testing import CliRunner

from vllm_tt.bundle.schema import schema
from vllm_tt.cli import main


def test_the_schema_is_printed_as_it_ships():
    result = CliRunner().invoke(main, ["schema"])
    assert result.exit_code == 0
    assert json.loads(result.output) == schema()
