/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody meant who wrote an unknown word. */
#ifndef SLUICE_BASE_WORDS_H
#define SLUICE_BASE_WORDS_H

/* Edits (insert, delete, replace, swap of neighbours) that lead from one word to the other; SL_WORD_FAR when it takes more
 * than one, and one more for each four letters. Case, '-' and '_' make no difference: time_slicing and time-slicing are both timeSlicing. */
#define SL_WORD_FAR 99U
unsigned sl_word_distance(const char *written, const char *known);

/* The closest of the words, a list that ends with NULL; NULL: none is close. */
const char *sl_word_closest(const char *written, const char *const *words);

#endif
