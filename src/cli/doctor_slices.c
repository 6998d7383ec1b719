/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/doctor.h"
#include "cli/slices_probe.h"

#define BY_TURNS "GPU time is shared by turns"

static void tell_verdict(struct sl_doctor *d, size_t i, const struct sl_slices_result *r,
                         const char *when)
{
    static const char update[] = "nothing has to be done; a newer driver may let slices be set";
    switch (r->verdict) {
    case SL_SLICES_WORK:
        if (r->off)
            sl_doctor_add(d, "slices", SL_DOCTOR_OK, NULL,
                          "GPU %zu: time slices work (1 : %u.%u), channels can be taken off%s", i,
                          r->tenths / 10, r->tenths % 10, when);
        else
            sl_doctor_add(d, "slices", SL_DOCTOR_WARNING, update,
                          "GPU %zu: time slices work (1 : %u.%u), channels cannot be taken off "
                          "(status 0x%x): " BY_TURNS "%s",
                          i, r->tenths / 10, r->tenths % 10, r->status, when);
        return;
    case SL_SLICES_NO_EFFECT:
        if (r->off)
            sl_doctor_add(
                d, "slices", SL_DOCTOR_WARNING,
                "run `sluice doctor` again when the computer is idle; the arbiter, too, measures "
                "this between two busy programs, and then uses turns by itself",
                "GPU %zu: channels can be taken off, but time slices have no effect "
                "(1 : %u.%u)%s",
                i, r->tenths / 10, r->tenths % 10, when);
        else /* the arbiter reads this verdict whenever a tenant comes */
            sl_doctor_add(d, "slices", SL_DOCTOR_WARNING, update,
                          "GPU %zu: the driver accepts time slices, and they have no effect "
                          "(1 : %u.%u): " BY_TURNS "%s",
                          i, r->tenths / 10, r->tenths % 10, when);
        return;
    case SL_SLICES_REFUSED:
        sl_doctor_add(d, "slices", SL_DOCTOR_WARNING, update,
                      "GPU %zu: the driver refuses to set time slices (status 0x%x): " BY_TURNS
                      "%s",
                      i, r->status, when);
        return;
    case SL_SLICES_NO_GROUP:
        sl_doctor_add(
            d, "slices", SL_DOCTOR_WARNING, "stop MPS if it runs; otherwise nothing has to be done",
            "GPU %zu: processes have no compute channels of their own (MPS, or an unknown "
            "driver): " BY_TURNS "%s",
            i, when);
        return;
    }
}

void sl_doctor_slices(struct sl_doctor *d, size_t i, const char *uuid, const char *driver)
{
    struct sl_err err = SL_ERR_INIT;
    struct sl_slices_result r;
    char libsluice[PATH_MAX];
    /* doctor_system.c has a line of its own for a libsluice that does not work. */
    if (sl_world_libsluice(d->world, d->libsluice, libsluice, sizeof(libsluice), NULL) < 0 ||
        sl_world_libsluice_check(libsluice, NULL) < 0)
        return;
    /* Doctor makes no directory: where there is none, it measures each time. */
    SL_CLEANUP(close)
    int dir = sl_arbiter_dir_check(&d->world->place, NULL) < 0
                  ? -1
                  : open(d->world->place.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (sl_slices_recall(dir, uuid, driver, &r)) {
        tell_verdict(d, i, &r, " (measured earlier)");
    } else if (sl_slices_probe(d->world, libsluice, uuid, &r, &err) < 0) {
        sl_doctor_add(d, "slices", SL_DOCTOR_WARNING,
                      "run `sluice doctor` again when the GPU has free memory and time",
                      "GPU %zu: the measurement of time slices failed: %s", i, err.msg);
    } else {
        tell_verdict(d, i, &r, "");
        /* One control works and the other does not: probably the host was too busy. Do not remember the result. */
        if (r.verdict != SL_SLICES_NO_EFFECT || !r.off)
            sl_slices_remember(dir, uuid, driver, &r);
    }
}
