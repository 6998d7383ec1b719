/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice lease create|list|delete`: limits that containers get with `--device sluice.io/lease=NAME`. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/words.h"
#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/lease_actions.h"

static const char *const action_names[] = {"create", "list", "delete", NULL};
enum action { CREATE, LIST, DELETE, NONE };

static enum action find_action(const char *word)
{
    for (int i = 0; action_names[i]; i++)
        if (strcmp(word, action_names[i]) == 0)
            return (enum action)i;
    return NONE;
}

/* The action that an option belongs to; NONE: to all of them. */
static enum action action_of(const char *option)
{
    static const struct {
        const char *option;
        enum action action;
    } others[] = {{"json", LIST}, {"force", DELETE}, {"cdi-dir", NONE}, {"sim", NONE}};
    for (size_t i = 0; i < SL_ARRAY_LEN(others); i++)
        if (strcmp(option, others[i].option) == 0)
            return others[i].action;
    return CREATE;
}

static int check_options(const struct sl_cli_args *args, enum action action, struct sl_err *err)
{
    for (size_t i = 0; args->verb->options[i].name; i++) {
        enum action owner = action_of(args->verb->options[i].name);
        if (args->value[i] && owner != NONE && owner != action)
            return sl_err_set(err, -EINVAL, SL_E_LEASE_OPTION, args->verb->options[i].name,
                              action_names[owner]);
    }
    return 0;
}

/* The action that the words ask for. NONE: err says what is wrong with them. */
static enum action read_words(const struct sl_cli_args *args, struct sl_err *err)
{
    const char *word = args->rest_count > 0 ? args->rest[0] : "";
    enum action action = find_action(word);
    const char *close = action == NONE ? sl_word_closest(word, action_names) : NULL;
    int words = action == LIST ? 1 : 2;
    int rc = 0;
    if (close)
        rc = sl_err_set(err, -EINVAL, SL_E_LEASE_ACTION_NEAR, word, close);
    else if (action == NONE && *word)
        rc = sl_err_set(err, -EINVAL, SL_E_LEASE_ACTION_UNKNOWN, word);
    else if (action == NONE)
        rc = sl_err_set(err, -EINVAL, SL_E_LEASE_NO_ACTION);
    else if (args->rest_count < words)
        rc = sl_err_set(err, -EINVAL, SL_E_LEASE_NO_NAME, action_names[action]);
    else if (args->rest_count > words)
        rc = sl_err_set(err, -EINVAL, SL_E_LEASE_EXTRA_WORD, args->rest[words],
                        action_names[action], words == 2 ? " NAME" : "");
    else
        rc = check_options(args, action, err);
    return rc < 0 ? NONE : action;
}

#ifndef SLUICE_WITH_CONTAINERS

static int act(const struct sl_cli_args *args, enum action action, struct sl_err *err)
{
    (void)args;
    (void)action;
    return sl_err_set(err, -ENOSYS, SL_E_LEASE_NOT_BUILT);
}

#else

static int act(const struct sl_cli_args *args, enum action action, struct sl_err *err)
{
    static int (*const actions[])(const struct sl_cli_args *args, struct sl_err *err) = {
        [CREATE] = sl_cmd_lease_create, [LIST] = sl_cmd_lease_list, [DELETE] = sl_cmd_lease_delete};
    return actions[action](args, err);
}

#endif

int sl_cmd_lease(const struct sl_cli_args *args)
{
    struct sl_err err = SL_ERR_INIT;
    enum action action = read_words(args, &err);
    if (action == NONE) {
        sl_cli_complain("lease: %s", err.msg);
        return SL_EXIT_USAGE;
    }
    if (act(args, action, &err) == 0)
        return sl_cli_finish(SL_EXIT_OK);
    sl_cli_complain("lease: %s", err.msg);
    return SL_EXIT_FAILED;
}
