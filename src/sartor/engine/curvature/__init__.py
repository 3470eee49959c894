"""Second-order quantities: the neural tangent kernel's trace, diagonals of Hessians, their recursion."""
