import numpy as np
from vllm.v1.outputs import LogprobsLists

from vllm_tt.sampling.logprobs import UNKNOWN_RANK, chosen_logprobs, device_logprobs, likeliest_logprobs, merge


def lists(found):
    return [np.asarray(part).tolist() for part in found[:3]]


def test_a_chosen_tokens_logprob_is_the_likeliest_ones_where_it_was_taken():
    tokens, logprobs = np.array([7, 8], np.int32), np.array([-0.5, -1.5], np.float32)
    assert lists(chosen_logprobs(tokens, logprobs, np.array([True, False]))) == [
        [[7, 7], [8, 8]],
        [[-0.5, -0.5], [-1.5, -1.5]],
        [1, UNKNOWN_RANK],
    ]


def test_a_chosen_token_is_found_among_the_likeliest():
    logprobs = np.array([[-0.5, -1.0, -2.0]] * 3, np.float32)
    indices = np.array([[4, 9, 2]] * 3, np.int32)
    found = likeliest_logprobs(np.array([9, 4, 77], np.int32), logprobs, indices)
    assert lists(found) == [
        [[9, 4, 9, 2], [4, 4, 9, 2], [77, 4, 9, 2]],
        [[-1.0, -0.5, -1.0, -2.0], [-0.5, -0.5, -1.0, -2.0], [-2.0, -0.5, -1.0, -2.0]],
        [2, 1, 3],
    ]


def test_both_forms_of_a_device_are_understood():
    tokens, likeliest = np.array([3, 4], np.int32), np.array([True, True])
    chosen = device_logprobs(tokens, np.array([-1.0, -2.0], np.float32), None, likeliest)
    assert chosen.logprob_token_ids.tolist() == [[3, 3], [4, 4]]
    indices = np.array([[3, 4]] * 2, np.int32)
    listed = device_logprobs(tokens, np.array([[-1.0, -2.0]] * 2, np.float32), indices, likeliest)
    assert listed.sampled_token_ranks.tolist() == [1, 2]


def test_parts_come_together_by_row():
    wide = LogprobsLists(np.array([[1, 2, 3]]), np.array([[-1.0, -2.0, -3.0]]), np.array([1]))
    narrow = LogprobsLists(np.array([[4], [5]]), np.array([[-4.0], [-5.0]]), np.array([2, 3]))
    merged = merge(4, [(np.array([2]), wide), (np.array([3, 0]), narrow), (np.array([1]), None)])
    assert merged.logprob_token_ids.tolist() == [[5, 0, 0], [0, 0, 0], [1, 2, 3], [4, 0, 0]]
    assert merged.logprobs[2].tolist() == [-1.0, -2.0, -3.0]
    assert merged.logprobs[:, 0].tolist() == [-5.0, -np.inf, -1.0, -4.0]
    assert merged.sampled_token_ranks.tolist() == [3, 0, 1, 2]


def test_nothing_comes_of_nothing():
    assert merge(2, [(np.array([0, 1]), None)]) is None
