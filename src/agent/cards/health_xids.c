/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cards/health.h"
#include "base/cleanup.h"

/* By number. NVIDIA's own plugin ignores the six of applications; the rest of the table decides how
 * long a card is kept back, and what people read. */
static const struct sl_health_xid_kind kinds[] = {
    {13, "a program's kernel raised an exception", .application = true},
    {31, "a program touched memory it does not have", .application = true},
    {43, "a program's work was stopped after an error", .application = true},
    {45, "a program's work was cleaned up after it ended", .application = true},
    {48, "uncorrectable memory error", .reset = true, .whole_card = true},
    {61, "the card's microcontroller stopped", .reset = true, .whole_card = true},
    {62, "the card's microcontroller halted", .reset = true, .whole_card = true},
    {63, "a memory row was marked for replacement", .reset = false},
    {64, "a memory row could not be replaced", .reset = true, .whole_card = true},
    {68, "a video decoder raised an exception", .application = true},
    {69, "the compute engine raised a class error", .reset = false},
    {74, "NVLink error", .reset = true, .whole_card = true},
    {79, "the card has fallen off the bus", .reset = true, .whole_card = true},
    {92, "many corrected memory errors", .reset = false},
    {94, "uncorrectable memory error, contained in one program", .reset = true},
    {95, "uncorrectable memory error, not contained", .reset = true, .whole_card = true},
    {109, "a program's context did not switch in time", .application = true},
    {110, "security fault", .reset = true, .whole_card = true},
    {119, "the card's system processor did not answer", .reset = true, .whole_card = true},
    {120, "the card's system processor failed", .reset = true, .whole_card = true},
    {136, "NVLink training failed", .reset = true, .whole_card = true},
    {140, "uncorrectable memory errors, not recovered", .reset = true, .whole_card = true},
    {143, "the card did not initialise", .reset = true, .whole_card = true},
    {154, "the driver changed what it advises for the card", .reset = false},
};

const struct sl_health_xid_kind *sl_health_xid_kind(uint64_t xid)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(kinds); i++)
        if (kinds[i].xid == xid)
            return &kinds[i];
    return NULL;
}
