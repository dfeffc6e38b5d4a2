//! carefree-reactor
