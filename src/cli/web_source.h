/* SPDX-License-Identifier: Apache-2.0 */
/* The status of an arbiter in the form of the page. Sends no requests. */
#ifndef SLUICE_CLI_WEB_SOURCE_H
#define SLUICE_CLI_WEB_SOURCE_H

#include "cli/status_view.h"
#include "page/page.h"

/* JSON, to be freed. */
char *sl_web_data(const struct sl_status_view *view, const struct sl_page_ask *ask,
                  size_t *ret_size);
/* Where would `sluice run` put it? By the figures of the status and the placement policy. */
char *sl_web_fit(const struct sl_status_view *view, const struct sl_page_want *want,
                 size_t *ret_size);

#endif
