/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging for programs (libraries return errors and stay silent). Lines are `time level text`
 * on stderr or in a file. libsluice, which lives in someone else's process, is off by default.
 */
#ifndef SLUICE_BASE_LOG_H
#define SLUICE_BASE_LOG_H

#include "base/err.h"

enum sl_log_level { SL_LOG_OFF, SL_LOG_ERROR, SL_LOG_WARN, SL_LOG_INFO, SL_LOG_DEBUG };

/* fd is borrowed; -1 silences. */
void sl_log_open(enum sl_log_level level, int fd);
/* For a log in another program's process: that program may close fd and reuse its number for its own file. Then later
 * lines go to the file called `path`, opened for each line. */
void sl_log_open_file(enum sl_log_level level, int fd, const char *path);
enum sl_log_level sl_log_level_parse(const char *text, enum sl_log_level fallback);
void sl_log(enum sl_log_level level, const char *fmt, ...) SL_PRINTF(2, 3);

#define sl_error(...) sl_log(SL_LOG_ERROR, __VA_ARGS__)
#define sl_warn(...)  sl_log(SL_LOG_WARN, __VA_ARGS__)
#define sl_info(...)  sl_log(SL_LOG_INFO, __VA_ARGS__)
#define sl_debug(...) sl_log(SL_LOG_DEBUG, __VA_ARGS__)

#endif
