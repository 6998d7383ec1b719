/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named fault points. In a build with SLUICE_FAULTS, SLUICE_FAULT=name[:n] in the environment kills
 * the process with SIGKILL the n-th time it passes that point. SLUICE_FAULT=random:seed:p kills at
 * any point with probability 1/p. SLUICE_FAULT=@FILE kills at the point whose name is in the file
 * and removes the file, so only one process dies. SLUICE_FAULT=hold:name:n:FILE kills nobody: at the
 * n-th time the thread makes FILE, and waits there until a test has removed it. In a release build the points vanish.
 */
#ifndef SLUICE_BASE_FAULT_H
#define SLUICE_BASE_FAULT_H

#ifdef SLUICE_FAULTS
void sl_fault_point(const char *name);
#define SL_FAULT(name)      sl_fault_point(name)
#define SL_FAULT_NAME(name) name /* for a point inside a shared function */
#else
#define SL_FAULT(name)      ((void)0)
#define SL_FAULT_NAME(name) NULL
#endif

#endif
