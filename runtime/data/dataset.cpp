#include "runtime/data/dataset.h"

#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/data/token_source.h"

namespace dstrain {

void* samples_in(std::span<const InputTensor> inputs, InputRole role, int64_t count,
                 int64_t elements) {
  const auto found = std::ranges::find(inputs, role, &InputTensor::role);
  check(found != inputs.end(), "samples are read into a batch that has no {}", name_of(role));
  const Tensor& tensor = found->tensor;
  check(has_dtype(role, tensor.dtype) && tensor.elements() == count * elements,
        "{} samples of {} {} are read into {}, which is {} {}", count, elements, name_of(role),
        found->name, name_of(tensor.dtype), to_string(tensor.shape));
  return tensor.data;
}

std::string remark_text(const TokenSource& source) {
  return source.remark().empty() ? ""
                                 : fmt::format("; {} is {}", source.file().path(), source.remark());
}

}  // namespace dstrain
