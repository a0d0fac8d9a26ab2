/* Products of matrices that BLAS can read as they are. */
#include <limits.h>

#include "engine/cpu/matmul.h"

struct layout {
    CBLAS_TRANSPOSE transpose;
    int leading;
};

/* How to describe a matrix to BLAS; false: BLAS cannot read it. Strides of an axis with one element do not matter. */
static bool layout_find(const struct matrix *matrix, struct layout *layout) {
    int64_t row = matrix->row_stride, column = matrix->column_stride;
    if (matrix->rows > INT_MAX || matrix->columns > INT_MAX) {
        return false;
    }
    bool single_row = matrix->rows == 1, single_column = matrix->columns == 1;
    if ((column == 1 || single_column) && (single_row || (row >= matrix->columns && row <= INT_MAX))) {
        *layout = (struct layout){CblasNoTrans, (int)(single_row ? matrix->columns : row)};
        return true;
    }
    if ((row == 1 || single_row) && (single_column || (column >= matrix->rows && column <= INT_MAX))) {
        *layout = (struct layout){CblasTrans, (int)(single_column ? matrix->rows : column)};
        return true;
    }
    return false;
}

/* y = A · x, or y += A · x, where x and y have strides; A as stored is `transpose`d. */
static void blas_vector(const struct blas *blas, enum dtype dtype, const struct matrix *a, struct layout layout,
                        const char *x, int x_stride, char *y, int y_stride, bool add) {
    int rows = (int)(layout.transpose == CblasNoTrans ? a->rows : a->columns);
    int columns = (int)(layout.transpose == CblasNoTrans ? a->columns : a->rows);
    blas_multiply_vector(blas, &(struct blas_product){.dtype = dtype,
                                                      .add = add,
                                                      .a_transpose = layout.transpose,
                                                      .m = rows,
                                                      .n = columns,
                                                      .a_stride = layout.leading,
                                                      .b_stride = x_stride,
                                                      .c_stride = y_stride,
                                                      .a = a->data,
                                                      .b = x,
                                                      .c = y});
}

static bool vector_stride(int64_t stride, int64_t length, int *out) {
    *out = length == 1 ? 1 : (int)stride;
    return length == 1 || (stride > 0 && stride <= INT_MAX);
}

/* A product with a single row or column, for which gemm is slow. False: it is no such product, or has odd strides. */
static bool blas_by_vector(const struct blas *blas, enum dtype dtype, const struct matrix *a, const struct matrix *b,
                           const struct matrix *c, bool add) {
    int x_stride, y_stride;
    struct layout layout;
    if (b->columns == 1 && layout_find(a, &layout) && vector_stride(b->row_stride, b->rows, &x_stride) &&
        vector_stride(c->row_stride, c->rows, &y_stride)) {
        blas_vector(blas, dtype, a, layout, b->data, x_stride, c->data, y_stride, add);
        return true;
    }
    struct matrix across = matrix_transposed(b);
    if (a->rows == 1 && layout_find(&across, &layout) && vector_stride(a->column_stride, a->columns, &x_stride)) {
        blas_vector(blas, dtype, &across, layout, a->data, x_stride, c->data, 1, add);
        return true;
    }
    return false;
}

bool matrix_is_plain(const struct matrix *matrix) {
    struct layout layout;
    return layout_find(matrix, &layout);
}

bool matrix_multiply(const struct blas *blas, enum dtype dtype, const struct matrix *a, const struct matrix *b,
                     const struct matrix *c, bool add) {
    struct layout left, right;
    if (blas_by_vector(blas, dtype, a, b, c, add)) {
        return true;
    }
    if (!layout_find(a, &left) || !layout_find(b, &right) || c->row_stride > INT_MAX) {
        return false;
    }
    blas_multiply_matrices(blas, &(struct blas_product){.dtype = dtype,
                                                        .add = add,
                                                        .a_transpose = left.transpose,
                                                        .b_transpose = right.transpose,
                                                        .m = (int)a->rows,
                                                        .n = (int)b->columns,
                                                        .k = (int)a->columns,
                                                        .a_stride = left.leading,
                                                        .b_stride = right.leading,
                                                        .c_stride = (int)c->row_stride,
                                                        .a = a->data,
                                                        .b = b->data,
                                                        .c = c->data});
    return true;
}
