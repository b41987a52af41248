"""``python -m tools.tiny_models FAMILY FOLDER``."""

from pathlib import Path

import click
from tools.tiny_models.families import FAMILIES
from tools.tiny_models.write import write


@click.command()
@click.argument("family", type=click.Choice(list(FAMILIES)))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--seed", default=0, show_default=True, help="Of the weights.")
def main(family: str, folder: Path, seed: int) -> None:
    """Write a tiny random checkpoint of FAMILY into FOLDER: config.json and safetensors, float32."""
    click.echo(write(family, folder, seed=seed))


if __name__ == "__main__":
    main()
