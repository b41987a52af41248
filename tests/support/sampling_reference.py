"""What vLLM's own sampler makes of one row that is alone, described by vLLM's own input batch."""

import torch
from vllm.v1.sample.logits_processor import (
    LogitBiasLogitsProcessor,
    LogitsProcessors,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from vllm.v1.sample.sampler import Sampler
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch


class Reference:
    """One request, sampled step by step."""

    def __init__(self, vllm_config, params, prompt):
        self.vocab_size = vllm_config.model_config.get_vocab_size()
        cpu = torch.device("cpu")
        kinds = (MinTokensLogitsProcessor, LogitBiasLogitsProcessor, MinPLogitsProcessor)
        self.batch = InputBatch(
            max_num_reqs=1,
            max_model_len=256,
            max_num_batched_tokens=256,
            device=cpu,
            vocab_size=self.vocab_size,
            block_sizes=[16],
            kernel_block_sizes=[16],
            max_num_blocks_per_req=[16],
            logitsprocs=LogitsProcessors(kind(vllm_config, cpu, False) for kind in kinds),
            logitsprocs_need_output_token_ids=True,
        )
        self.sampler = Sampler(logprobs_mode=vllm_config.model_config.logprobs_mode)
        self.output = []
        generator = None if params.seed is None else torch.Generator().manual_seed(params.seed)
        self.batch.add_request(
            CachedRequestState(
                req_id="alone",
                prompt_token_ids=list(prompt),
                mm_features=[],
                sampling_params=params,
                generator=generator,
                block_ids=([1],),
                num_computed_tokens=0,
                output_token_ids=self.output,
            )
        )

    def sample(self, logits, allowed=None):
        """(token, LogprobsLists or None) for ``logits`` [V'], of which a grammar allows the tokens ``allowed``."""
        self.batch.refresh_metadata()
        row = logits[: self.vocab_size].float()[None].clone()
        if allowed is not None:
            forbidden = torch.ones(self.vocab_size, dtype=torch.bool)
            forbidden[list(allowed)] = False
            row[0, forbidden] = float("-inf")
        out = self.sampler(row, self.batch.sampling_metadata)
        token = int(out.sampled_token_ids[0, 0])
        self.output.append(token)
        return token, None if out.logprobs_tensors is None else out.logprobs_tensors.tolists()
