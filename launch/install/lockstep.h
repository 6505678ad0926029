/* lockstep.h - what programs include that train by liblockstep. */
#ifndef DP_LAUNCH_INSTALL_LOCKSTEP_H
#define DP_LAUNCH_INSTALL_LOCKSTEP_H

#include "runtime/lockstep.h"

#endif
