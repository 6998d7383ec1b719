/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the word that a user probably meant by an unknown word. */
#ifndef SLUICE_BASE_WORDS_H
#define SLUICE_BASE_WORDS_H

/* The number of edits (insert, delete, replace, swap of neighbours) from one word to the other; SL_WORD_FAR for more
 * than one edit, and one more for each four letters. Case, '-' and '_' do not count: time_slicing and time-slicing are
 * both timeSlicing. */
#define SL_WORD_FAR 99U
unsigned sl_word_distance(const char *written, const char *known);

/* The closest word of a list that ends with NULL; NULL: no word is close. */
const char *sl_word_closest(const char *written, const char *const *words);

#endif
