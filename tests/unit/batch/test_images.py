import pytest
from images import feature

from vllm_tt.batch.images import (
    NoImageArgument,
    UnsupportedModality,
    image_arguments,
    image_names,
    images_of,
)

NAMES = ("pixel_values", "image_grid_thw", "image_sizes", "images")


def lists(arguments):
    return {
        name: [row and [value if value is None else value.tolist() for value in row] for row in rows]
        for name, rows in arguments.items()
    }


def test_images_come_in_the_order_of_the_prompt():
    second = feature(9, 4, pixel_values=[2.0])
    first = feature(2, 3, pixel_values=[1.0])
    images = images_of("a", [second, first])
    assert [(image.start, image.end) for image in images] == [(2, 5), (9, 13)]


def test_another_medium_is_refused():
    with pytest.raises(UnsupportedModality) as error:
        images_of("a", [feature(0, 4, modality="video", pixel_values=[1.0])])
    assert str(error.value) == "Request 'a' has video input; adapters take text and images."


def test_rows_are_aligned_and_pixels_of_what_was_computed_are_left_out():
    two = images_of(
        "a",
        [
            feature(2, 3, pixel_values=[1.0], image_grid_thw=[1, 2, 6]),
            feature(9, 4, pixel_values=[2.0], image_grid_thw=[1, 4, 4]),
        ],
    )
    sized = images_of("b", [feature(0, 4, pixel_values=[3.0], image_sizes=[28, 56])])
    assert lists(image_arguments([two, (), sized], [5, 0, 0], NAMES)) == {
        "pixel_values": [[None, [2.0]], None, [[3.0]]],
        "image_grid_thw": [[[1, 2, 6], [1, 4, 4]], None, None],
        "image_sizes": [None, None, [[28, 56]]],
        "images": [[None, [2.0]], None, [[3.0]]],
    }
    # a chunk that begins within an image needs it
    assert lists(image_arguments([two], [4], ["pixel_values"])) == {"pixel_values": [[[1.0], [2.0]]]}


def test_an_image_whose_data_vllm_has_dropped():
    images = images_of("a", [feature(0, 4), feature(6, 2, pixel_values=[1.0], image_grid_thw=[1, 2, 4])])
    assert lists(image_arguments([images], [4], NAMES[:2])) == {
        "pixel_values": [[None, [1.0]]],
        "image_grid_thw": [[None, [1, 2, 4]]],
    }


class Whole:
    def prefill_forward(self, **kwargs): ...


class Named:
    def prefill_forward(self, *, tokens, pixel_values, image_sizes=None, **kwargs): ...


class OldName:
    def prefill_forward(self, tokens, images): ...


class Text:
    def prefill_forward(self, tokens, page_table): ...


@pytest.mark.parametrize(
    ("adapter", "more", "expected"),
    [
        (Whole(), (), ("pixel_values", "image_grid_thw")),
        (Whole(), ("num_patches",), ("pixel_values", "image_grid_thw", "num_patches")),
        (Named(), (), ("pixel_values", "image_grid_thw", "image_sizes")),
        (OldName(), (), ("images",)),
    ],
    ids=["any", "any, and one by the table", "named", "another name"],
)
def test_an_adapter_is_sent_what_it_takes(adapter, more, expected):
    assert image_names(adapter, "X", more) == expected


def test_an_adapter_that_takes_no_pixels_is_refused():
    with pytest.raises(NoImageArgument) as error:
        image_names(Text(), "Qwen2_5_VLForConditionalGeneration")
    assert str(error.value) == (
        "Text.prefill_forward() takes neither pixel_values nor images, though prompts of "
        "Qwen2_5_VLForConditionalGeneration may have images. If it serves text alone, declare "
        '"max_images_per_prompt": 0 in its model_capabilities.'
    )
