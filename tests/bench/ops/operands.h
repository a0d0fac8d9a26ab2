/* What rows are measured on: each function makes the operands of a case, for its dtype and size. table.py has the same for the peers, by the
 * same names. */
#pragma once

#include "tests/bench/ops/rows.h"

/* Channels and extent of the images of a network's rows, as in the first stage of a ResNet-50. */
enum { CHANNELS = 64, EXTENT = 56 };
/* Of attention; vectors of an embedding have as many features. */
enum { HEADS = 8, TOKENS = 256, FEATURES = 64 };

void operands_vectors(struct ops_case *at);
void operands_square(struct ops_case *at);
void operands_positions(struct ops_case *at);
void operands_vector_of_matrix(struct ops_case *at);
void operands_oblong(struct ops_case *at);
void operands_images(struct ops_case *at);
void operands_layers(struct ops_case *at);
void operands_masked(struct ops_case *at);
void operands_ordered(struct ops_case *at);
void operands_integers(struct ops_case *at);
void operands_places(struct ops_case *at);
void operands_definite(struct ops_case *at);
void operands_heads(struct ops_case *at);
void operands_signals(struct ops_case *at);
void operands_volumes(struct ops_case *at);
void operands_depthwise(struct ops_case *at);
void operands_colours(struct ops_case *at);
void operands_four_gates(struct ops_case *at);
void operands_three_gates(struct ops_case *at);
void operands_parameter(struct ops_case *at);
void operands_batch(struct ops_case *at);
void operands_ten(struct ops_case *at);
void operands_above_one(struct ops_case *at);
void operands_shifts(struct ops_case *at);
void operands_masks(struct ops_case *at);
void operands_near_one(struct ops_case *at);
void operands_column(struct ops_case *at);
void operands_pair(struct ops_case *at);
void operands_booleans(struct ops_case *at);
void operands_counts(struct ops_case *at);
void operands_edges(struct ops_case *at);
void operands_points(struct ops_case *at);
void operands_factors(struct ops_case *at);
void operands_folded(struct ops_case *at);
void operands_tall(struct ops_case *at);
void operands_spectrum(struct ops_case *at);
void operands_half_plane(struct ops_case *at);
void operands_kinds(struct ops_case *at);
void operands_runs(struct ops_case *at);
void operands_words(struct ops_case *at);
void operands_scores(struct ops_case *at);
void operands_losses(struct ops_case *at);
void operands_pooled(struct ops_case *at);
void operands_narrow(struct ops_case *at);
void operands_heads_back(struct ops_case *at);
void operands_heads_back_causal(struct ops_case *at);
void operands_four_gates_back(struct ops_case *at);
void operands_three_gates_back(struct ops_case *at);
