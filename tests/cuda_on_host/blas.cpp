/*
 * blas.cpp - cublasLt.h on the host: products by CBLAS, in double and rounded once, queued on the
 * stream. So a result does not depend on how many rows are multiplied at a time. Only algorithms
 * that cut k into parts round more often: OTHER adds two in float32, IN_PARTS many in the type of
 * d.
 */
#include "cublasLt.h"

#include <cblas.h>
#include <string.h>
#include <vector>

#include "elements.h"
#include "inside.h"

struct cuda_host_blas {
    int unused;
};

struct cuda_host_product {
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    bool tf32;
};

struct cuda_host_layout {
    cudaDataType type;
    size_t rows, cols, ld;
};

struct cuda_host_wishes {
    uint32_t schemes; /* of reduction, that algorithms may use */
};

/* Numbers of algorithms, and the least k that is cut. BROKEN is proposed as one that has failed,
 * with nothing to rely on; FAILING fails when it is run. */
enum { BROKEN, PLAIN, OTHER, IN_PARTS, FAILING, PARTS = 256, LONG = 4096 };

/* Densely packed, as double. */
static std::vector<double> widened(const void *array, const cuda_host_layout &layout, bool tf32)
{
    std::vector<double> wide(layout.rows * layout.cols);

    for (size_t i = 0; i < wide.size(); i++) {
        const float value = get(array, layout.type, i / layout.rows * layout.ld + i % layout.rows);
        wide[i] = (double)(tf32 ? to_tf32(value) : value);
    }
    return wide;
}

static void finish(const cuda_host_product &product, const cuda_host_layout &layout, void *d,
                   const std::vector<double> &sums)
{
    const int epilogue = product.epilogue;

    for (size_t i = 0; i < sums.size(); i++) {
        const size_t row = i % layout.rows;
        double value = sums[i];
        if ((epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
            value += (double)get(product.bias, layout.type, row);
        }
        if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0 && value < 0) {
            value = 0;
        }
        put(d, layout.type, i / layout.rows * layout.ld + row, (float)value);
    }
}

/* The sums of b, densely packed, over the depth: one for each column of d, and of its type. */
static void sum_columns(const cuda_host_product &product, const cuda_host_layout &d_layout,
                        size_t depth, const std::vector<double> &b)
{
    const size_t cols = d_layout.cols;

    for (size_t col = 0; col < cols; col++) {
        double sum = 0;
        for (size_t i = 0; i < depth; i++) {
            sum += product.b == CUBLAS_OP_N ? b[col * depth + i] : b[i * cols + col];
        }
        put(const_cast<void *>(product.bias), d_layout.type, col, static_cast<float>(sum));
    }
}

/* sums = beta sums + the product over k of one part of several. */
static void multiply_part(const cuda_host_product &product, const std::vector<double> &left,
                          size_t left_rows, const std::vector<double> &right, size_t right_rows,
                          const cuda_host_layout &d_layout, const size_t k[2], double beta,
                          std::vector<double> &sums)
{
    const bool a_plain = product.a == CUBLAS_OP_N, b_plain = product.b == CUBLAS_OP_N;

    cblas_dgemm(CblasColMajor, a_plain ? CblasNoTrans : CblasTrans,
                b_plain ? CblasNoTrans : CblasTrans, static_cast<int>(d_layout.rows),
                static_cast<int>(d_layout.cols), static_cast<int>(k[1] - k[0]), 1,
                left.data() + k[0] * (a_plain ? left_rows : 1), static_cast<int>(left_rows),
                right.data() + k[0] * (b_plain ? 1 : right_rows), static_cast<int>(right_rows),
                beta, sums.data(), static_cast<int>(d_layout.rows));
}

static void round_all(std::vector<double> &sums, cudaDataType type)
{
    for (double &sum : sums) {
        float cell;
        put(&cell, type, 0, static_cast<float>(sum));
        sum = static_cast<double>(get(&cell, type, 0));
    }
}

static void multiply(const cuda_host_product &product, uint64_t number, float beta, const void *a,
                     const cuda_host_layout &a_layout, const void *b,
                     const cuda_host_layout &b_layout, void *d, const cuda_host_layout &d_layout)
{
    const std::vector<double> left = widened(a, a_layout, product.tf32);
    const std::vector<double> right = widened(b, b_layout, product.tf32);
    std::vector<double> sums(d_layout.rows * d_layout.cols);
    const size_t depth = product.a == CUBLAS_OP_N ? a_layout.cols : a_layout.rows;
    const int parts = number == IN_PARTS ? PARTS : number == OTHER ? 2 : 1;

    cuda_on_host_spend(number != OTHER && cuda_on_host_second_is_fastest() ? 1.0 : 0.0);
    if (beta != 0) {
        sums = widened(d, d_layout, false);
    }
    for (int i = 0; i < parts; i++) {
        const size_t count = static_cast<size_t>(parts), part = static_cast<size_t>(i);
        const size_t k[2] = {depth * part / count, depth * (part + 1) / count};
        multiply_part(product, left, a_layout.rows, right, b_layout.rows, d_layout, k,
                      i == 0 ? static_cast<double>(beta) : 1.0, sums);
        if (parts > 1) {
            round_all(sums, number == OTHER ? CUDA_R_32F : d_layout.type);
        }
    }
    if ((product.epilogue & CUBLASLT_EPILOGUE_BGRADB) != 0) {
        sum_columns(product, d_layout, depth, right);
    }
    finish(product, d_layout, d, sums);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const cuda_host_product product = *desc;
    const cuda_host_layout left = *a_layout, right = *b_layout, result = *d_layout;
    const float factor = *static_cast<const float *>(beta);

    (void)handle;
    (void)c_layout;
    (void)workspace;
    (void)workspace_bytes;
    if (*static_cast<const float *>(alpha) != 1.0f || c != d || algo->number == BROKEN ||
        algo->number == FAILING) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (const void *memory : {a, b, static_cast<const void *>(d), product.bias}) {
        cuda_on_host_must_reach(memory);
    }
    const uint64_t number = algo->number;
    cuda_on_host_queue(stream, 1, 0, [product, number, left, right, result, factor, a, b, d]() {
        multiply(product, number, factor, a, left, b, right, d, result);
    });
    return CUBLAS_STATUS_SUCCESS;
}

static bool fits(const cuda_host_product *p, const cuda_host_layout *a, const cuda_host_layout *b,
                 const cuda_host_layout *d)
{
    const size_t m = p->a == CUBLAS_OP_N ? a->rows : a->cols;
    const size_t k = p->a == CUBLAS_OP_N ? a->cols : a->rows;
    const size_t k2 = p->b == CUBLAS_OP_N ? b->rows : b->cols;
    const size_t n = p->b == CUBLAS_OP_N ? b->cols : b->rows;

    return m == d->rows && n == d->cols && k == k2;
}

/* None with sums for odd depths, so that somebody has to do without. */
static bool has_product(const cuda_host_product *p, const cuda_host_layout *a)
{
    return p->epilogue != CUBLASLT_EPILOGUE_BGRADB ||
           (p->a == CUBLAS_OP_N ? a->cols : a->rows) % 2 == 0;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle;
    (void)c;
    if (!fits(desc, a, b, d)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (algo->number <= BROKEN || algo->number > FAILING || !has_product(desc, a)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    result->workspaceSize = 0;
    result->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

/* Two good algorithms, so that there is something to choose from, behind a broken one and the one
 * in parts where it may be. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    (void)handle;
    (void)c;
    if (!fits(desc, a, b, d)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!has_product(desc, a)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    std::vector<int> numbers = {PLAIN, OTHER, FAILING};
    if ((preference->schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0 &&
        (desc->a == CUBLAS_OP_N ? a->cols : a->rows) >= LONG) {
        numbers.insert(numbers.begin(), IN_PARTS);
    }
    *found = 1;
    results[0] = {{BROKEN}, size_t(1) << 50, CUBLAS_STATUS_NOT_SUPPORTED};
    for (int number : numbers) {
        if (*found < wanted) {
            results[(*found)++] = {{static_cast<uint64_t>(number)}, 0, CUBLAS_STATUS_SUCCESS};
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        memcpy(&desc->a, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        memcpy(&desc->b, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        memcpy(&desc->epilogue, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        memcpy(&desc->bias, value, bytes);
        break;
    }
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "error";
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new cuda_host_blas{0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType scale)
{
    (void)scale;
    *desc = new cuda_host_product{CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr,
                                  compute == CUBLAS_COMPUTE_32F_FAST_TF32};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    *layout = new cuda_host_layout{type, rows, cols, static_cast<size_t>(ld)};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new cuda_host_wishes{CUBLASLT_REDUCTION_SCHEME_MASK};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
        memcpy(&preference->schemes, value, bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}
