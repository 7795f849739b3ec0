// The family of models that torch.export.save has written: `dstrain.model.file` names the archive.
#pragma once

#include <string>

#include "runtime/config/family/family.h"

namespace dstrain {

// Returns the family of all archives; that of one archive, which its `open` returns, has the inputs and the sizes.
const ModelFamily& exported_family();

}  // namespace dstrain
