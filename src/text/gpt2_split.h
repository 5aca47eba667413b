/*
 * The pieces of a text within which GPT-2 merges, as its pattern cuts them (Radford et al.,
 * "Language Models are Unsupervised Multitask Learners", 2019, and the code published with it):
 *
 *   's|'t|'re|'ve|'m|'ll|'d     endings
 *   | ?\p{L}+                   letters, after at most one space
 *   | ?\p{N}+                   numbers, likewise
 *   | ?[^\s\p{L}\p{N}]+         anything else, likewise
 *   |\s+(?!\S)                  spaces, but for the last before something else
 *   |\s+                        spaces
 *
 * A byte that is no UTF-8 counts as anything else.
 */
#ifndef GPT2_SPLIT_H
#define GPT2_SPLIT_H

#include <stddef.h>

/* What follows the end of a piece that more text cannot change: at least so many bytes. */
#define GPT2_AHEAD 4

/* Bytes of the piece at the beginning of text[0 .. bytes), bytes > 0; text[bytes] is 0. At most
 * `most`, or a character more. */
size_t tr_gpt2_piece(const char *text, size_t bytes, size_t most);

#endif
