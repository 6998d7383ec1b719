/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of this room: see base/errtable.h. */
/* clang-format off */
#ifndef SLUICE_POLICY_ERRORS_H
#define SLUICE_POLICY_ERRORS_H

#include "base/errtable.h"

SL_ERROR_PART("simulate");

SL_ERROR(POLICY_UNKNOWN, "policy \"%s\" is not known: choose one of: %s",
    "a typing error", "one of the policies in the message");

SL_ERROR_PART("placing");

SL_ERROR(PLACE_NO_NODE, "no node has room for the request",
    "no node has enough free GPU memory and time", "nothing: the scheduler tries again");
SL_ERROR_ALSO(PLACE_NODE_FULL, "node %u has no room for the request, or no longer");
SL_ERROR_ALSO(PLACE_GPU_FULL, "GPU %u of node %u has no room for the request, or no longer");

SL_ERROR_PART("internal");

SL_ERROR(PLACE_GPUS, "node %zu has %u GPUs; at most %d are supported",
    "a program gave wrong numbers to the placement engine or to the scheduler of GPU time",
    "please report it with the log");
SL_ERROR_ALSO(ADVICE_POD, "pod %zu is on no node of the list, or has too many parts");
SL_ERROR_ALSO(PLACE_MODEL, "node %zu: model number %u is not below %d");
SL_ERROR_ALSO(PLACE_POLICY, "policy number %d is not known");
SL_ERROR_ALSO(PLACE_NODES, "%zu nodes are more than supported");
SL_ERROR_ALSO(PLACE_REQUEST_GPUS, "%u GPUs are asked for, but a node has at most %d");
SL_ERROR_ALSO(PLACE_REQUEST_SHARE, "a share of one GPU is at most 1000 permille");
SL_ERROR_ALSO(PLACE_REQUEST_PROFILE, "MIG profile number %u is not known");
SL_ERROR_ALSO(PLACE_REQUEST_MIG, "a MIG request must name one instance and no other share");
SL_ERROR_ALSO(PLACE_REQUEST_EMPTY, "the request asks for a GPU, but for no share of it");
SL_ERROR_ALSO(PLACE_CARDS, "%u cards are wanted of %zu");
SL_ERROR_ALSO(PLACE_DECISION, "the decision does not belong to the request");
SL_ERROR_ALSO(PLACE_NOT_HELD, "node %u does not hold this request");
SL_ERROR_ALSO(PLACE_NO_SUCH_NODE, "there is no node %u");
SL_ERROR_ALSO(PLACE_CHECK_NODE, "node %u: the account of CPU, memory, pods or order is wrong");
SL_ERROR_ALSO(PLACE_CHECK_GPU, "node %u GPU %u: the account is wrong");
SL_ERROR_ALSO(PLACE_CHECK_FREE, "node %u: the account says that %u of the GPUs are free, the sum is %u");
SL_ERROR_ALSO(PLACE_CHECK_TOTAL, "the totals are not equal to the sum over all nodes");
SL_ERROR_ALSO(PLACE_CHECK_SCORE, "node %u: the saved score is %d, the computed score is %d");
SL_ERROR_ALSO(PLACE_NO_DEMAND, "the expected demand is empty");
SL_ERROR_ALSO(PREFER_NO_GPU, "there is no GPU %zu among %zu to choose from");
SL_ERROR_ALSO(PREFER_TWICE, "GPU %zu would have to be taken twice");
SL_ERROR_ALSO(PREFER_COUNT, "%zu GPUs are asked for, but %zu must be taken and %zu can be taken");
SL_ERROR_ALSO(PREFER_SHARE, "share %zu of the list is not valid");
SL_ERROR_ALSO(PREFER_SHARES, "%zu shares are asked for, but %llu must be taken and %llu can be taken");
SL_ERROR_ALSO(STEER_MASK, "GPU mask 0x%x is not valid: use GPUs 0 to %u");
SL_ERROR_ALSO(STEER_LIMIT, "a limit of 0 lets nothing run: ask for at least 0.1 %%");
SL_ERROR_ALSO(STEER_NUMBER, "tenant number %u is too high: the highest is %u");
SL_ERROR_ALSO(STEER_USED, "tenant number %u is in use");
SL_ERROR_ALSO(STEER_NONE, "there is no tenant number %u");
SL_ERROR_ALSO(TURNS_GPUS, "turns: a tenant needs 1 to %u GPUs");
SL_ERROR_ALSO(TURNS_SHARE, "turns: the request must be 0 to 1000 and the limit 1 to 1000 permille, not %u:%u");
SL_ERROR_ALSO(TURNS_PRIORITY, "turns: unknown priority %u");
SL_ERROR_ALSO(TURNS_NUMBER, "turns: tenant number %u is too high: at most %u tenants");
SL_ERROR_ALSO(TURNS_EXISTS, "turns: tenant %u exists already");
SL_ERROR_ALSO(TURNS_NONE, "turns: there is no tenant %u");

#endif
