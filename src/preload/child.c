/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/child.h"

#include "preload/capture.h"
#include "preload/channels.h"
#include "preload/charge.h"
#include "preload/context.h"
#include "preload/device.h"
#include "preload/gate.h"
#include "preload/graph_mem.h"
#include "preload/pool.h"
#include "preload/share.h"
#include "preload/track.h"
#include "preload/vmm.h"

void sl_child_forget(void)
{
    sl_charge_forget();
    sl_track_forget();
    sl_device_forget();
    sl_context_forget();
    sl_pool_forget();
    sl_vmm_forget();
    sl_share_forget();
    sl_graph_mem_forget();
    sl_channels_forget();
    sl_capture_forget();
    sl_gate_forget();
}
