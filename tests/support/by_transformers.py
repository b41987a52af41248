"""What transformers answers with the same weights."""

import torch


@torch.inference_mode()
def greedy(model, tokens, count, **inputs):
    """The greedy tokens that follow a prompt of token ids, and the logits that each was chosen from [count, V].

    ``inputs``: further arguments of ``generate``.
    """
    prompt = torch.tensor([tokens])
    out = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=count,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        **inputs,
    )
    return out.sequences[0, len(tokens) :].tolist(), torch.cat(out.logits)
