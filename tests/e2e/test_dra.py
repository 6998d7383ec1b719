# SPDX-License-Identifier: Apache-2.0
"""Fractions by resource claims."""
