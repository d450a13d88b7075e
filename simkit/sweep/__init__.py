"""simkit.sweep"""
