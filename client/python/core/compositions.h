/* Calls that are not generated from a prototype (functions.toml). */
#pragma once

#include "client/python/core/core.h"

int call_full(const union argument *in, td_tensor **out);
int call_arange(const union argument *in, td_tensor **out);
/* Of these x[0] takes the result. */
int call_scatter_into(const union argument *in, td_tensor **out);
int call_where_into(const union argument *in, td_tensor **out);

int call_slice(const union argument *in, td_tensor **out);
/* Of several outputs: *out is an array of them from malloc(), with a NULL behind the last one. */
int call_meshgrid(const union argument *in, td_tensor **out);
int call_split(const union argument *in, td_tensor **out);
int call_unstack(const union argument *in, td_tensor **out);
int call_clip_grad_norm(const union argument *in, td_tensor **out);
int call_moveaxis(const union argument *in, td_tensor **out);
int call_tensordot(const union argument *in, td_tensor **out);
int call_fftn(const union argument *in, td_tensor **out);
int call_ifftn(const union argument *in, td_tensor **out);
int call_rfftn(const union argument *in, td_tensor **out);
int call_irfftn(const union argument *in, td_tensor **out);
