// The families of kernels that do arithmetic on matrices.
#pragma once

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/products/products.cuh"
