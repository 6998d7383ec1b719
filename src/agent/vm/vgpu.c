/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/vm/vgpu.h"

#include <stdio.h>
#include <string.h>

#include "agent/vm/errors.h"

/* An existing vGPU of either kind. */
struct instance {
    const char *id, *card, *type;
    int group;
    bool mdev;
};

static const char *card_of(const struct sl_vm_tree *tree, const char *function)
{
    const struct sl_vm_function *f = sl_vm_tree_function(tree, function);
    return f && f->parent[0] ? f->parent : function;
}

/* The n-th vGPU of the machine; false: there are fewer. */
static bool instance_at(const struct sl_vgpu_input *in, size_t n, struct instance *ret)
{
    const struct sl_vm_tree *t = in->tree;
    for (size_t i = 0; i < t->function_count; i++) {
        const struct sl_vm_function *f = &t->function[i];
        if (!f->vgpu_type || !f->parent[0] || n-- > 0)
            continue;
        const char *type = sl_vm_type_name(t, in->types, in->type_count, f->vgpu_type);
        *ret = (struct instance){f->address, f->parent, type, f->group, false};
        return true;
    }
    if (n >= t->mdev_count)
        return false;
    const struct sl_vm_mdev *m = &t->mdev[n];
    *ret = (struct instance){m->uuid, card_of(t, m->parent), m->type, m->group, true};
    return true;
}

static bool is_ours(const struct sl_vgpu_input *in, const char *id)
{
    for (size_t i = 0; i < in->made_count; i++)
        if (strcmp(in->made[i], id) == 0)
            return true;
    return false;
}

/* --- the wishes ---------------------------------------------------------------------------------- */

static bool names_card(const struct sl_vgpu_input *in, const struct sl_config_vgpu *v,
                       const char *address)
{
    for (size_t i = 0; i < v->devices.count; i++) {
        const char *name = v->devices.text[i];
        if (strcmp(name, address) == 0)
            return true;
        for (size_t c = 0; c < in->card_count; c++)
            if (strcmp(in->card[c].uuid, name) == 0 && strcmp(in->card[c].address, address) == 0)
                return true;
    }
    return v->devices.count == 0;
}

static unsigned wanted(const struct sl_vgpu_input *in, const char *card, const char *type)
{
    const struct sl_config_vgpu *v = in->wanted->item;
    for (size_t i = 0; i < in->wanted->count; i++)
        if (strcmp(v[i].name, type) == 0 && names_card(in, &v[i], card))
            return v[i].count;
    return 0;
}

static unsigned count_of(const struct sl_vgpu_input *in, const char *card, const char *type)
{
    struct instance x;
    unsigned n = 0;
    for (size_t i = 0; instance_at(in, i, &x); i++)
        n += strcmp(x.card, card) == 0 && strcmp(x.type, type) == 0;
    return n;
}

/* Is one of ours beyond the wanted number? Those of others count first: they stay. */
static bool is_surplus(const struct sl_vgpu_input *in, const struct instance *x)
{
    struct instance o;
    unsigned before = 0;
    if (!is_ours(in, x->id))
        return false;
    for (size_t i = 0; instance_at(in, i, &o); i++) {
        if (strcmp(o.card, x->card) != 0 || strcmp(o.type, x->type) != 0)
            continue;
        before += !is_ours(in, o.id) || strcmp(o.id, x->id) < 0;
    }
    return before >= wanted(in, x->card, x->type);
}

bool sl_vgpu_leaves(const struct sl_vgpu_input *in, const char *id)
{
    struct instance x;
    for (size_t i = 0; instance_at(in, i, &x); i++)
        if (strcmp(x.id, id) == 0)
            return is_surplus(in, &x);
    return false;
}

static bool can_make(const struct sl_vm_tree *tree, const char *card)
{
    for (size_t i = 0; i < tree->function_count; i++) {
        const struct sl_vm_function *f = &tree->function[i];
        if (f->makes_vgpus && strcmp(f->parent[0] ? f->parent : f->address, card) == 0)
            return true;
    }
    return false;
}

bool sl_vgpu_claims(const struct sl_vgpu_input *in, const char *address)
{
    const struct sl_config_vgpu *v = in->wanted->item;
    for (size_t i = 0; i < in->wanted->count; i++)
        if (names_card(in, &v[i], address) && can_make(in->tree, address))
            return true;
    return false;
}

/* --- steps --------------------------------------------------------------------------------------- */

#define WAITS(step, ...)                                                                           \
    do {                                                                                           \
        if (!(step)->waits[0])                                                                     \
            (void)snprintf((step)->waits, sizeof((step)->waits), __VA_ARGS__);                     \
    } while (0)

static void remove_one(const struct instance *x, struct sl_vgpu_step *ret)
{
    ret->kind = SL_VGPU_REMOVE;
    ret->group = x->group;
    (void)snprintf(ret->id, sizeof(ret->id), "%s", x->id);
    (void)snprintf(ret->card, sizeof(ret->card), "%s", x->card);
    (void)snprintf(ret->type, sizeof(ret->type), "%s", x->type);
    if (x->mdev)
        (void)snprintf(ret->file, sizeof(ret->file), "sys/bus/mdev/devices/%s/remove", x->id);
    else
        (void)snprintf(ret->file, sizeof(ret->file),
                       "sys/bus/pci/devices/%s/nvidia/current_vgpu_type", x->id);
    (void)snprintf(ret->text, sizeof(ret->text), "%s", x->mdev ? "1\n" : "0\n");
}

/* A virtual function without a type that can have this one. */
static bool make_on_vf(const struct sl_vm_function *f, struct sl_vgpu_step *ret)
{
    for (size_t i = 0; f->parent[0] && f->vgpu_type == 0 && i < f->creatable_count; i++) {
        if (strcmp(f->creatable[i].name, ret->type) != 0)
            continue;
        (void)snprintf(ret->id, sizeof(ret->id), "%s", f->address);
        (void)snprintf(ret->file, sizeof(ret->file),
                       "sys/bus/pci/devices/%s/nvidia/current_vgpu_type", f->address);
        (void)snprintf(ret->text, sizeof(ret->text), "%u\n", f->creatable[i].id);
        return true;
    }
    return false;
}

static bool make_mdev(const struct sl_vm_function *f, const char *uuid, struct sl_vgpu_step *ret)
{
    for (size_t i = 0; i < f->mdev_type_count; i++) {
        const struct sl_mdev_type *t = &f->mdev_type[i];
        if (strcmp(t->name, ret->type) != 0 || t->available < 1)
            continue;
        (void)snprintf(ret->id, sizeof(ret->id), "%s", uuid);
        (void)snprintf(ret->file, sizeof(ret->file),
                       "sys/bus/pci/devices/%s/mdev_supported_types/%s/create", f->address, t->dir);
        (void)snprintf(ret->text, sizeof(ret->text), "%s\n", uuid);
        return true;
    }
    return false;
}

/* Sets the step for one more vGPU of a type on a card; false: it does not fit. */
static bool make_one(const struct sl_vgpu_input *in, const char *card, const char *type,
                     struct sl_vgpu_step *ret)
{
    (void)snprintf(ret->card, sizeof(ret->card), "%s", card);
    (void)snprintf(ret->type, sizeof(ret->type), "%s", type);
    for (size_t i = 0; i < in->tree->function_count; i++) {
        const struct sl_vm_function *f = &in->tree->function[i];
        if (strcmp(f->parent[0] ? f->parent : f->address, card) == 0 &&
            (make_on_vf(f, ret) || make_mdev(f, in->new_uuid, ret))) {
            ret->kind = SL_VGPU_MAKE;
            return true;
        }
    }
    return false;
}

static bool next_make(const struct sl_vgpu_input *in, struct sl_vgpu_step *ret)
{
    const struct sl_config_vgpu *v = in->wanted->item;
    for (size_t i = 0; i < in->wanted->count; i++)
        for (size_t k = 0; k < in->tree->function_count; k++) {
            const struct sl_vm_function *card = &in->tree->function[k];
            if (!sl_vm_is_card(card) || card->parent[0] || !names_card(in, &v[i], card->address) ||
                !can_make(in->tree, card->address))
                continue;
            unsigned have = count_of(in, card->address, v[i].name);
            if (have >= wanted(in, card->address, v[i].name))
                continue;
            if (in->busy(in->data, card->address))
                WAITS(ret, SL_E_VGPU_BUSY, card->address);
            else if (make_one(in, card->address, v[i].name, ret))
                return true;
            else
                WAITS(ret, SL_E_VGPU_UNFIT, v[i].name, card->address, have, v[i].count);
        }
    return false;
}

void sl_vgpu_next(const struct sl_vgpu_input *in, struct sl_vgpu_step *ret)
{
    struct instance x;
    *ret = (struct sl_vgpu_step){.group = SL_NO_GROUP};
    for (size_t i = 0; instance_at(in, i, &x); i++) {
        if (!is_surplus(in, &x))
            continue;
        if (in->held(in->data, x.id)) {
            WAITS(ret, SL_E_VGPU_HELD, x.type, x.id);
            continue;
        }
        remove_one(&x, ret);
        return;
    }
    if (!next_make(in, ret)) {
        ret->kind = SL_VGPU_NOTHING;
        ret->id[0] = '\0';
    }
}
