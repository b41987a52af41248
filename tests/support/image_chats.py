"""Chats with images: as clients send them, and as transformers is asked."""

import base64
import io
import random

import pytest
from PIL import Image


def chats(tokenizer, settings, *, number=30):
    """Bodies of requests, and the inputs of transformers' ``generate`` for each.

    Up to three images a chat, some of them in several; a third of the chats begin with the same image.
    """
    rng = random.Random(6)
    processor = processor_of(tokenizer, settings)
    pictures = [picture(rng) for _ in range(4)]
    beginning = [words(rng, 30), pictures[0], words(rng, 12)]
    made = []
    for i in range(number):
        parts = [words(rng, rng.randint(1, 40))]
        for _ in range(i % 4):
            parts += [rng.choice(pictures) if rng.random() < 0.4 else picture(rng), words(rng, rng.randint(1, 20))]
        made.append(chat(processor, [*beginning, *parts] if i % 3 == 0 else parts))
    return made


def unreadable():
    """Bodies with an image that no server can read, by what is wrong with it."""
    whole = data_url(encoded(picture(random.Random(1))))
    urls = {
        "truncated": whole[: len(whole) // 2],
        "not an image": data_url(b"these are words"),
        "not base64": "data:image/png;base64,%%%",
        "another medium": "data:text/plain;base64,aGVsbG8=",
        "too narrow": data_url(encoded(Image.new("RGB", (300, 1)))),
        "an unknown scheme": "gopher://127.0.0.1/image.png",
        "no URL": "an image",
    }
    return {name: message([{"type": "image_url", "image_url": {"url": url}}]) for name, url in urls.items()}


def chat(processor, parts):
    """Of texts and images in their order."""
    images = [part for part in parts if not isinstance(part, str)]
    sent = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": data_url(encoded(part))}}
        for part in parts
    ]
    template = [part if part["type"] == "text" else {"type": "image"} for part in sent]
    text = processor.tokenizer.apply_chat_template(
        message(template)["messages"], add_generation_prompt=True, tokenize=False
    )
    inputs = processor(text=[text], images=images or None, return_tensors="pt")
    return message(sent), dict(inputs)


def message(content):
    return {"messages": [{"role": "user", "content": content}]}


def processor_of(tokenizer, settings):
    """Transformers' own, with what the checkpoint says of it."""
    pytest.importorskip("torchvision")
    from transformers import Qwen2_5_VLProcessor
    from transformers.models.qwen2_vl import Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    images = Qwen2VLImageProcessor(**{name: value for name, value in settings.values.items() if "_type" not in name})
    return Qwen2_5_VLProcessor(images, tokenizer, Qwen2VLVideoProcessor())


def picture(rng):
    width, height = rng.randint(9, 70), rng.randint(9, 70)
    return Image.frombytes("RGB", (width, height), rng.randbytes(3 * width * height))


def encoded(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def data_url(content):
    return "data:image/png;base64," + base64.b64encode(content).decode()


def words(rng, length):
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(length))
