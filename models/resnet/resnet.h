// ResNet (He et al., "Deep residual learning for image recognition", 2015), with torchvision's names and initialisation.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& resnet();

}  // namespace dstrain
