"""Greedy decoding of JSON that likes nothing so much as blanks, through vLLM's own structured output."""

import json
import pickle
import time

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from vllm.config import StructuredOutputsConfig
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from vllm_tt.platform.policies import compact_json

EOS = 256
LIST = {"type": "array", "items": {"type": "boolean"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": LIST}, "required": ["a", "b"]}
ONLY_GUIDANCE = {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 2}}, "required": ["a"]}


@pytest.fixture
def config(make_config, tmp_path):
    """Of a model whose tokens are bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: token for token, character in enumerate(alphabet)} | {"</s>": EOS}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(described))
    made = make_config(model={"config": {"vocab_size": EOS + 1, "eos_token_id": EOS}})
    made.model_config.skip_tokenizer_init = False
    return made


def generate(config, asked, most=200):
    """The backend that vLLM chose for a request and the text, as its front end and its engine handle it."""
    manager = StructuredOutputManager(config)
    params = SamplingParams(temperature=0, structured_outputs=StructuredOutputsParams(**asked))
    params.verify(config.model_config, None, StructuredOutputsConfig(), manager.tokenizer)
    request = Request("r", [1], params, None)
    manager.grammar_init(request)
    while not request.structured_output_request.is_grammar_ready:
        time.sleep(0.001)
    grammar = request.structured_output_request.grammar
    likes = [*manager.tokenizer.encode(" \n\t\r"), EOS, *manager.tokenizer.encode("}]")]
    tokens = []
    while len(tokens) < most and not grammar.is_terminated():
        mask = manager.grammar_bitmask({"r": request}, ["r"], {})
        allowed = np.flatnonzero(np.unpackbits(mask[0].view(np.uint8), bitorder="little")[: EOS + 1]).tolist()
        token = next((liked for liked in likes if liked in allowed), allowed[0])
        assert grammar.accept_tokens("r", [token])
        tokens.append(token)
    return params.structured_outputs._backend, manager.tokenizer.decode([token for token in tokens if token != EOS])


CASES = {
    "schema": ({"json": SCHEMA}, "xgrammar"),
    "schema that xgrammar refuses": ({"json": ONLY_GUIDANCE}, "guidance"),
    "any object": ({"json_object": True}, "xgrammar"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_engine_writes_json_that_ends(config, name):
    asked, backend = CASES[name]
    assert generate(config, asked) == (backend, "{" + " " * 199)
    compact_json(config)
    chosen, text = generate(config, asked)
    assert chosen == backend
    assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("backend", ["auto", "xgrammar", "guidance", "outlines", "lm-format-enforcer"])
def test_an_engines_configuration_may_be_settled_and_sent_afterwards(make_config, backend):
    config = make_config(structured_outputs_config=StructuredOutputsConfig(backend=backend))
    config.model_config = None  # the hooks pass over a configuration without a model
    compact_json(config)
    config.__post_init__()
    assert pickle.loads(pickle.dumps(config)).structured_outputs_config.disable_any_whitespace
