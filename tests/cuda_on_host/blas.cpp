/*
 * blas.cpp - cublasLt.h on the host: products by CBLAS, in double and rounded once, queued on the
 * stream. So a result does not depend on how many rows are multiplied at a time. Only algorithms
 * that cut k into parts round more often: OTHER adds two in float32, IN_PARTS many in the type of
 * d.
 *
 * Stricter than cuBLASLt, which goes on with what may be somebody else's memory: the program ends
 * where an algorithm gets less workspace than it has asked for, or an address that is no multiple
 * of what it was promised. It was promised 256 bytes where nobody said less. A vector beside the
 * product begins where 16 bytes can be read at once, and is named before algorithms are asked for.
 */
#include "cublasLt.h"

#include <algorithm>
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "costs.h"
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
    size_t workspace; /* bytes that they may want */
    uint32_t alignment[4];
};

/* Numbers of algorithms, and the least k that is cut. BROKEN is proposed as one that has failed,
 * with nothing to rely on; FAILING fails when it is run. */
enum { BROKEN, PLAIN, OTHER, IN_PARTS, FAILING, PARTS = 256, LONG = 4096 };

enum { NO_LESS = 256, BESIDE = 16 }; /* what addresses are multiples of */

/* Densely packed, as double. */
static std::vector<double> widened(const void *array, const cuda_host_layout &layout, bool tf32)
{
    std::vector<double> wide(layout.rows * layout.cols);
    double *to = wide.data();

    for (size_t col = 0; col < layout.cols; col++) {
        for (size_t row = 0; row < layout.rows; row++) {
            const float value = get(array, layout.type, col * layout.ld + row);
            *to++ = (double)(tf32 ? to_tf32(value) : value);
        }
    }
    return wide;
}

static void finish(const cuda_host_product &product, const cuda_host_layout &layout, void *d,
                   const std::vector<double> &sums)
{
    const int epilogue = product.epilogue;
    const double *from = sums.data();

    for (size_t col = 0; col < layout.cols; col++) {
        for (size_t row = 0; row < layout.rows; row++) {
            double value = *from++;
            if ((epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
                value += (double)get(product.bias, layout.type, row);
            }
            if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0 && value < 0) {
                value = 0;
            }
            put(d, layout.type, col * layout.ld + row, (float)value);
        }
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

    cuda_on_host_spend(
        (number != OTHER && cuda_on_host_second_is_fastest() ? 1.0 : 0.0) +
        (product.epilogue == CUBLASLT_EPILOGUE_BGRADB ? cuda_on_host_cost("sums") : 1.0));
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

/* ---- what algorithms rely on ---- */

static size_t workspace_of(int number)
{
    return number == OTHER ? size_t(64) << 10 : number == IN_PARTS ? size_t(1) << 20 : 0;
}

static bool is_beside(const cuda_host_product &product)
{
    return (product.epilogue & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADB)) != 0;
}

static void check_address(const char *name, const void *memory, uint64_t multiple)
{
    if (reinterpret_cast<uintptr_t>(memory) % multiple != 0) {
        fprintf(stderr, "cublasLtMatmul is given %s at %p, which is no multiple of %u\n", name,
                memory, static_cast<unsigned>(multiple));
        abort();
    }
}

static void check_workspace(const cublasLtMatmulAlgo_t &algo, const void *workspace, size_t bytes)
{
    if (algo.workspace > bytes) {
        fprintf(stderr, "cublasLtMatmul is given %zu bytes of workspace for an algorithm of %zu\n",
                bytes, static_cast<size_t>(algo.workspace));
        abort();
    }
    if (algo.workspace > 0) {
        check_address("workspace", workspace, NO_LESS);
        cuda_on_host_must_reach("cublasLtMatmul", workspace);
        cuda_on_host_must_reach("cublasLtMatmul",
                                static_cast<const char *>(workspace) + algo.workspace - 1);
    }
}

static void check_reliance(const cublasLtMatmulAlgo_t &algo, const cuda_host_product &product,
                           const void *const arrays[4])
{
    static const char *const names[] = {"a", "b", "c", "d"};

    for (int i = 0; i < 4; i++) {
        check_address(names[i], arrays[i], algo.alignment[i]);
    }
    if (is_beside(product)) {
        check_address("the vector beside", product.bias, BESIDE);
    }
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
    if (*static_cast<const float *>(alpha) != 1.0f || c != d || algo->number == BROKEN ||
        algo->number == FAILING) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (!is_beside(product) && product.bias != nullptr) { /* as cuBLASLt 13.1 */
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    for (const void *memory : {a, b, static_cast<const void *>(d), product.bias}) {
        cuda_on_host_must_reach("cublasLtMatmul", memory);
    }
    const void *const arrays[] = {a, b, c, d};
    const cublasLtMatmulAlgo_t given = *algo;
    check_workspace(given, workspace, workspace_bytes);
    check_reliance(given, product, arrays);
    cuda_on_host_queue_call(
        "cublasLtMatmul", stream,
        [product, given, left, right, result, factor, a, b, d, workspace]() {
            std::fill_n(static_cast<unsigned char *>(workspace), given.workspace, 0xff);
            multiply(product, given.number, factor, a, left, b, right, d, result);
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

    return m > 0 && n > 0 && m == d->rows && n == d->cols && k == k2;
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
    result->workspaceSize = algo->workspace;
    result->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written)
{
    const int32_t number = static_cast<int32_t>(algo->number);

    if (attribute != CUBLASLT_ALGO_CONFIG_ID || bytes != sizeof(number)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(value, &number, sizeof(number));
    if (written != nullptr) {
        *written = sizeof(number);
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* Two good algorithms, so that there is something to choose from, after a broken one and the one
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
    if (desc->epilogue == CUBLASLT_EPILOGUE_BGRADB && cuda_on_host_lacks("sums")) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!has_product(desc, a)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (is_beside(*desc) && desc->bias == nullptr) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    std::vector<int> numbers = {PLAIN, OTHER, FAILING};
    if ((preference->schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0 &&
        (desc->a == CUBLAS_OP_N ? a->cols : a->rows) >= LONG) {
        numbers.insert(numbers.begin(), IN_PARTS);
    }
    *found = 1;
    results[0] = {{BROKEN, 0, {}}, size_t(1) << 50, CUBLAS_STATUS_NOT_SUPPORTED};
    for (int number : numbers) {
        cublasLtMatmulAlgo_t algo = {static_cast<uint64_t>(number), workspace_of(number), {}};
        std::copy_n(preference->alignment, 4, algo.alignment);
        if (*found < wanted && algo.workspace <= preference->workspace) {
            results[(*found)++] = {algo, algo.workspace, CUBLAS_STATUS_SUCCESS};
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
    *preference = new cuda_host_wishes{
        CUBLASLT_REDUCTION_SCHEME_MASK, 0, {NO_LESS, NO_LESS, NO_LESS, NO_LESS}};
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
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        memcpy(&preference->workspace, value, bytes);
        break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        memcpy(&preference->schemes, value, bytes);
        break;
    default:
        memcpy(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
               value, bytes);
        break;
    }
    return CUBLAS_STATUS_SUCCESS;
}
