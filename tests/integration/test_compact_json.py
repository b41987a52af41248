"""The worker prepares the engine's configuration for structured output."""

from engine import engine


def test_json_is_compact_with_the_backend_that_vllm_starts_with(checkpoint):
    with engine(checkpoint, max_model_len=256, max_num_seqs=2) as running:
        outputs = running.core.structured_output_manager.vllm_config.structured_outputs_config
        assert (outputs.backend, outputs.disable_any_whitespace) == ("auto", True)
