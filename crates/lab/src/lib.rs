//! carefree-lab
